"""The engines, on this machine: started when a test first asks for one."""

import gc
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import sklearn_dpgen

# Workers import the package and the functions of the tests.
_FOLDERS = [str(Path(__file__).parent), str(Path(sklearn_dpgen.__file__).parents[1])]
_ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(filter(None, [*_FOLDERS, os.environ.get("PYTHONPATH")])),
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# What the engines say of themselves, and leave open.
_WARNINGS = [
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore::DeprecationWarning:ray.data.context",
    "ignore:unclosed (file|<socket):ResourceWarning",
    "ignore:subprocess .* is still running:ResourceWarning",
]
# The engines that run, and how they stop.
_RUNNING, _STACK = {}, ExitStack()
ENGINES = ["synchronous", "threads", "distributed", "spark", "ray"]


def pytest_itemcollected(item):
    for warning in _WARNINGS:
        item.add_marker(pytest.mark.filterwarnings(warning))
    # Their starts and first tasks take longest, and the other engines run the same tests.
    engine = item.callspec.params.get("engine") if hasattr(item, "callspec") else None
    if engine in ("ray", "spark") or {"ray", "spark"} & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem):
    """Stop the engines where other tests follow, which have no use for their memory."""
    if nextitem is None or nextitem.path.parent != Path(__file__).parent:
        _RUNNING.clear()
        _STACK.close()
        gc.collect()


def started(engine):
    """Return what an engine gives when it is started, now or for an earlier test."""
    if engine not in _RUNNING:
        _RUNNING[engine] = _STACK.enter_context(engine())
    return _RUNNING[engine]


@contextmanager
def environment():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


def java_version():
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if java is None:
        return 0
    said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


@contextmanager
def start_cluster():
    """Two processes of distributed, with a nanny each."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    with (
        environment(),
        distributed.LocalCluster(**options, dashboard_address="127.0.0.1:0") as cluster,
    ):
        yield cluster


@contextmanager
def start_spark():
    """A session of two threads, where a task may fail twice."""
    sql = pytest.importorskip("pyspark.sql")
    pytest.importorskip("pyarrow")
    if java_version() < 17:
        pytest.skip("Spark needs Java 17 or newer, and this machine has none")
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with environment():
        builder = sql.SparkSession.builder.master("local[2,3]").appName("tests")
        session = builder.config(map=options).getOrCreate()
        yield session
        session.stop()


@contextmanager
def start_ray():
    """Ray on two cores, with little memory for objects."""
    ray = pytest.importorskip("ray")
    data = pytest.importorskip("ray.data")
    options = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
    with environment():
        ray.init(**options, log_to_driver=False, logging_level="ERROR")
        data.DataContext.get_current().enable_progress_bars = False
        yield ray
        ray.shutdown()


@pytest.fixture
def spark():
    return started(start_spark)


@pytest.fixture
def ray():
    return started(start_ray)


def split(frame, n_parts):
    """Return frames of all the records, of which the last have none if there are too few."""
    size = max(-(-len(frame) // n_parts), 1)
    return [frame.iloc[i * size : (i + 1) * size].reset_index(drop=True) for i in range(n_parts)]


def dask_table(frame, n_parts):
    dd = pytest.importorskip("dask.dataframe")
    return dd.concat([dd.from_pandas(part, npartitions=1) for part in split(frame, n_parts)])


@pytest.fixture(params=ENGINES)
def engine(request):
    """Return the name of an engine."""
    return request.param


@pytest.fixture
def make_table(engine):
    """Return a function that makes a table of an engine of a frame and a number of parts."""
    if engine == "spark":
        spark = started(start_spark)

        def make(frame, n_parts):
            types = {"i": "long", "u": "long", "O": "string"}
            schema = ", ".join(f"`{n}` {types[d.kind]}" for n, d in frame.dtypes.items())
            parts = [part.astype(object).values.tolist() for part in split(frame, n_parts)]
            rows = spark.sparkContext.parallelize(parts, n_parts).flatMap(list)
            return spark.createDataFrame(rows, schema)

        yield make
    elif engine == "ray":
        data = started(start_ray).data
        yield lambda frame, n_parts: data.from_pandas(split(frame, n_parts))
    elif engine == "distributed":
        with started(start_cluster).get_client():
            yield dask_table
    else:
        dask = pytest.importorskip("dask")
        with dask.config.set(scheduler=engine):
            yield dask_table
