/* Versions of dicts: numbers that grow with each change.

   Until 3.11 each dict has one. From 3.12 on dicts can be watched (Objects/dictobject.c, `PyDict_Watch`), and 3.14 has no versions any
   more. So a dict that a record asks about is watched there, and its version is kept here. The numbers lie close together, while the
   dicts are spread over the memory, and latest_dict_change() tells whether any of them has changed at all. A watched dict tells its
   death as well, so that the same version means that the dict is alive. It tells of a change before it happens; nothing of ours is
   asked about the dict until it has happened, unless another watcher runs code of the program. In return each change of a dict costs a
   call of on_dict_event(), as long as a record has its version. */

#if PY_VERSION_HEX < 0x030C0000

enum { VERSION_TELLS_DEATH = 0 };

static int
are_there_dict_versions(void)
{
    return 1;
}

/* Where the version of a dict lies. */
static uint64_t *
hold_dict_version(PyObject *dict)
{
    return &((PyDictObject *)dict)->ma_version_tag;
}

static void
release_dict_version(uint64_t *Py_UNUSED(version))
{
}

/* A number that is another one after each change of a dict that has a version; 0: there is none. */
static inline uint64_t
latest_dict_change(void)
{
    return 0;
}

#else

enum { VERSION_TELLS_DEATH = 1, NOT_WATCHING = -1, FIRST_BUCKETS = 64 };

typedef struct DictVersion {
    uint64_t number;             /* first: a DictVersion is known by where its number lies */
    PyObject *dict;              /* borrowed; NULL: it is dead */
    struct DictVersion *next;    /* in the same bucket */
    Py_ssize_t holders;
} DictVersion;

static struct {
    DictVersion **buckets;       /* by address of the dict */
    size_t n_buckets, n;         /* a power of two, and how many versions there are */
    int watcher;
} dict_versions = {.watcher = NOT_WATCHING};

static uint64_t last_change = 1;  /* the greatest of the numbers */

/* A number that is another one after each change of a dict that has a version; 0: there is none. */
static inline uint64_t
latest_dict_change(void)
{
    return last_change;
}

static DictVersion **
dict_version_bucket(PyObject *dict)
{
    return &dict_versions.buckets[(uintptr_t)dict / 16 % dict_versions.n_buckets];
}

/* Where the pointer to the version of a dict is, or, with NULL there, where it would be. */
static DictVersion **
dict_version_slot(PyObject *dict)
{
    DictVersion **slot = dict_version_bucket(dict);
    while (*slot != NULL && (*slot)->dict != dict) {
        slot = &(*slot)->next;
    }
    return slot;
}

/* Called before each change. It runs no Python code and never fails. */
static int
on_dict_event(PyDict_WatchEvent event, PyObject *dict, PyObject *Py_UNUSED(key), PyObject *Py_UNUSED(value))
{
    DictVersion **slot = dict_version_slot(dict), *version = *slot;
    if (version != NULL) {
        version->number = ++last_change;
        if (event == PyDict_EVENT_DEALLOCATED) {
            *slot = version->next;
            version->dict = NULL;
            dict_versions.n--;
        }
    }
    return 0;
}

/* Whether there is a table, and room in it for one more. */
static int
make_room_for_dict_version(void)
{
    if (dict_versions.n < dict_versions.n_buckets) {
        return 1;
    }
    size_t n_old = dict_versions.n_buckets, n_new = n_old == 0 ? FIRST_BUCKETS : 2 * n_old;
    DictVersion **old = dict_versions.buckets, **new = PyMem_Calloc(n_new, sizeof(DictVersion *));
    if (new == NULL) {
        return 0;
    }
    dict_versions.buckets = new;
    dict_versions.n_buckets = n_new;
    for (size_t i = 0; i < n_old; i++) {
        for (DictVersion *each = old[i], *next; each != NULL; each = next) {
            DictVersion **bucket = dict_version_bucket(each->dict);
            next = each->next;
            each->next = *bucket;
            *bucket = each;
        }
    }
    PyMem_Free(old);
    return 1;
}

/* Whether dicts can be watched: an interpreter has eight watchers. */
static int
are_there_dict_versions(void)
{
    if (dict_versions.watcher == NOT_WATCHING) {
        dict_versions.watcher = PyDict_AddWatcher(on_dict_event);
        if (dict_versions.watcher < 0) {
            PyErr_Clear();
            dict_versions.watcher = NOT_WATCHING;
        }
    }
    return dict_versions.watcher != NOT_WATCHING;
}

/* Where the version of a dict lies, until it is released; NULL: there is no memory, or no watcher. */
static uint64_t *
hold_dict_version(PyObject *dict)
{
    if (!are_there_dict_versions() || !make_room_for_dict_version()) {
        return NULL;
    }
    DictVersion **slot = dict_version_slot(dict);
    if (*slot == NULL) {
        DictVersion *version = PyMem_New(DictVersion, 1);
        if (version == NULL || PyDict_Watch(dict_versions.watcher, dict) < 0) {
            PyErr_Clear();
            PyMem_Free(version);
            return NULL;
        }
        *version = (DictVersion){.number = last_change, .dict = dict};
        *slot = version;
        dict_versions.n++;
    }
    (*slot)->holders++;
    return &(*slot)->number;
}

static void
release_dict_version(uint64_t *number)
{
    DictVersion *version = (DictVersion *)number;
    if (version == NULL || --version->holders > 0) {
        return;
    }
    if (version->dict != NULL) {
        DictVersion **slot = dict_version_slot(version->dict);
        *slot = version->next;
        dict_versions.n--;
        if (!IS_FINALIZING()) {   /* then watchers are gone, and dicts die without a word */
            PyObject *raised = PyErr_GetRaisedException();
            if (PyDict_Unwatch(dict_versions.watcher, version->dict) < 0) {
                PyErr_Clear();
            }
            PyErr_SetRaisedException(raised);
        }
    }
    PyMem_Free(version);
}

#endif
