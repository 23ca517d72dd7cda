// One event for each thing that a user does, and messages that change the page where nobody types.
(() => {
  // The name of the work stays in the address, so that a reload finds it.
  const name = document.getElementById('work').dataset.work;
  if (new URLSearchParams(location.search).get('work') !== name) {
    history.replaceState(null, '', `?work=${name}`);
  }
  const send = (what) =>
    Shiny.initializedPromise.then(() =>
      Shiny.setInputValue('act', {...what, nonce: Math.random()}, {priority: 'event'}));
  const timers = {};
  const later = (name, action, wait) => {
    clearTimeout(timers[name]);
    timers[name] = setTimeout(action, wait);
  };

  const edited = (el) => {
    const table = el.closest('[data-table]');
    const row = el.closest('[data-column]');
    send({do: 'edit', table: table.dataset.table, column: row ? row.dataset.column : '',
          field: el.dataset.edit, value: el.value});
  };
  document.addEventListener('change', (event) => {
    const el = event.target;
    if (el.dataset.edit) edited(el);
    else if (el.dataset.field) send({do: 'set', name: el.dataset.field, value: el.value});
  });
  document.addEventListener('input', (event) => {
    const el = event.target;
    if (el.type !== 'range') return;
    el.nextElementSibling.value = el.value;
    later(el.id, () => send({do: 'set', name: el.dataset.field, value: el.value}), 250);
  });
  document.addEventListener('click', async (event) => {
    const el = event.target.closest('button');
    if (!el) return;
    if (el.dataset.do) {
      const from = el.dataset.from && document.getElementById(el.dataset.from).value;
      send({do: el.dataset.do, value: from || el.dataset.value || ''});
    } else if (el.dataset.copies) {
      await navigator.clipboard.writeText(document.getElementById(el.dataset.copies).innerText);
      el.textContent = 'Copied';
    } else if (el.id === 'again') {
      location.reload();
    } else if (el.id === 'mode') {
      show(document.documentElement.dataset.bsTheme === 'dark' ? 'light' : 'dark');
    }
  });

  const show = (mode) => {
    document.documentElement.dataset.bsTheme = mode;
    localStorage.setItem('sklearn-dpgen-mode', mode);
  };
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  show(localStorage.getItem('sklearn-dpgen-mode') || (dark ? 'dark' : 'light'));

  const fault = (id, text) => {
    const note = document.getElementById(`${id}-fault`);
    const el = document.getElementById(id);
    if (note) note.textContent = text;
    if (el && text) el.setAttribute('aria-invalid', 'true');
    else if (el) el.removeAttribute('aria-invalid');
  };
  const handlers = {
    // Values that another page of the same work, or the program, has set.
    values(found) {
      for (const el of document.querySelectorAll('[data-field]')) {
        const value = found[el.dataset.field];
        if (value === undefined || el === document.activeElement || el.value === value) continue;
        el.value = value;
        if (el.type === 'range') el.nextElementSibling.value = value;
      }
    },
    faults(found) {
      for (const el of document.querySelectorAll('[data-field]')) {
        fault(el.id, found[el.dataset.field] || '');
      }
    },
    // A row of the schema after an edit; the field in which somebody types stays.
    row({key, kind, html, faults}) {
      const row = document.getElementById(key);
      if (row && html !== null && !row.querySelector('.declared').contains(document.activeElement)) {
        row.querySelector('.declared').innerHTML = html;
        row.querySelector('[data-edit=type]').value = kind;
      }
      for (const [id, text] of Object.entries(faults)) fault(id, text);
    },
    notes(found) {
      for (const [key, text] of Object.entries(found)) {
        const note = document.getElementById(`${key}-note`);
        if (note && note.textContent !== text) note.textContent = text;
      }
    },
    yaml(text) {
      const el = document.getElementById('yaml');
      if (el && el !== document.activeElement) el.value = text;
    },
  };
  $(document).on('shiny:connected', () => {
    for (const [name, handler] of Object.entries(handlers)) {
      Shiny.addCustomMessageHandler(`work-${name}`, handler);
    }
  });
  $(document).on('shiny:disconnected', () => {
    const lost = document.getElementById('lost');
    lost.hidden = false;
    lost.scrollIntoView();
    document.getElementById('again').focus();
  });
})();
