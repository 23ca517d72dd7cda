"""Synthetic tables, by a curator and from randomized answers."""

from itertools import combinations

from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.tables import LocalTableSampler, TableCounter, TableSampler

from .common import DELTA, EPSILON, SEED, TABLES, Timing, adult_like, rand_health


class Curator(Timing):
    """``TableSampler`` of two tables."""

    params = [list(TABLES)]
    param_names = ["table"]

    def prepare(self, table):
        self.frame, schema = TABLES[table]()
        self.sampler = TableSampler(EPSILON, DELTA, schema=schema, random_state=SEED)

    def time_fit(self, table):
        self.sampler.fit(self.frame)

    def time_plan(self, table):
        self.sampler.plan(n_samples=len(self.frame))


class Draws(Timing):
    def prepare(self):
        frame, schema = rand_health()
        self.sampler = TableSampler(EPSILON, DELTA, schema=schema, random_state=SEED)
        self.sampler.fit(frame)

    def time_sample_100k(self):
        self.sampler.sample(100_000, random_state=SEED)


class Certified(Timing):
    def prepare(self):
        self.frame, schema = rand_health()
        self.sampler = TableSampler(EPSILON, DELTA, schema=schema, noise="certified")

    def time_fit(self):
        self.sampler.fit(self.frame)


class Counting(Timing):
    """Rows a second: all pairs of columns, from the frame to exact counts."""

    def prepare(self):
        self.frame, schema = adult_like()
        self.encoder = TabularEncoder(schema, n_bins=32).fit()
        self.pairs = list(combinations(schema, 2))

    def count(self):
        return TableCounter(self.encoder, self.pairs).count(self.frame).finish()

    def time_all_pairs(self):
        self.count()

    def track_rows_per_second(self):
        import time

        start = time.perf_counter()
        self.count()
        return len(self.frame) / (time.perf_counter() - start)

    track_rows_per_second.unit = "rows/s"


class Answers(Timing):
    """One randomized answer a person, and the table that is learned from them."""

    def prepare(self):
        self.frame, schema = rand_health()
        self.mechanism = JointRandomizedResponse(4.0, schema=schema, random_state=SEED).fit()
        self.answers = self.mechanism.transform(self.frame)

    def time_transform(self):
        self.mechanism.transform(self.frame)

    def time_fit(self):
        LocalTableSampler(self.mechanism, random_state=SEED).fit(self.answers)
