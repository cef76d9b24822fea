/* A URL filter in nginx's access phase, in one of three ways:
 *
 *   tare_filter identity;        everything but the call
 *   tare_filter shm;             prefix and counters in shared memory of `tare filter control`
 *   tare_filter library [PATH];  a library with the published interface
 *   tare_filter off;             also in a server or location, which then is not filtered
 *   tare_filter_prefix PREFIX;   default: $DYNAMIC_LOAD_URL_PREFIX
 *   tare_filter_shm NAME;        default: $TARE_FILTER_SHM
 *   tare_filter_status;          in a location: counters as text; it is not filtered
 *
 * What cannot be set up stops nginx at its start: there is no way on without the filter.
 */
#include <dlfcn.h>
#include <sys/mman.h>

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "shared.h"

#define WORKERS_MAX 1024
/* Workers publish their counts that long after a request, for the status page. */
#define PUBLISH_MS 20

typedef enum { FILTER_OFF, FILTER_IDENTITY, FILTER_SHM, FILTER_LIBRARY } filter_kind_t;

static const char *const kind_names[] = { "off", "identity", "shm", "library" };

typedef struct {
    ngx_uint_t kind;
    ngx_str_t path;
    ngx_str_t prefix;
    ngx_str_t shm;
} filter_conf_t;

typedef struct {
    ngx_flag_t exempt;
} location_conf_t;

/* What one worker counted, published for the others. */
typedef struct {
    uint64_t seen;
    uint64_t accepted;
    uint64_t refused;
} counts_t;

typedef struct {
    counts_t gone; /* of the worker's predecessors in this place */
    counts_t now;
} place_t;

/* 1 accepts, 0 refuses, everything else is a failure. */
typedef int (*ask_t)(const char *url, size_t length);

typedef struct {
    filter_kind_t kind;
    ask_t ask;
    place_t *places; /* of all workers, shared by them */
    uint64_t seen;
    ngx_uint_t failed;
    ngx_event_t publish;
    char *copy; /* room for a terminated URL */
    size_t copy_size;
    struct shared *shared;
    struct shared_seat *seat;
    void *library;
    int (*url_filter)(const char *);
    void (*get_counters)(uint64_t *, uint64_t *);
    int counters_shared;
    ngx_str_t prefix;
} filter_t;

/* What is in use, and what a configuration that is being read would have used. */
static filter_t filter, next;

static void *create_main_conf(ngx_conf_t *cf);
static void *create_location_conf(ngx_conf_t *cf);
static char *merge_location_conf(ngx_conf_t *cf, void *parent, void *child);
static ngx_int_t postconfiguration(ngx_conf_t *cf);
static ngx_int_t init_module(ngx_cycle_t *cycle);
static ngx_int_t init_process(ngx_cycle_t *cycle);
static void exit_process(ngx_cycle_t *cycle);
static char *set_filter(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t status_handler(ngx_http_request_t *r);

static ngx_command_t commands[] = {
    { ngx_string("tare_filter"),
      NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_TAKE12, set_filter,
      NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },
    { ngx_string("tare_filter_prefix"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1,
      ngx_conf_set_str_slot, NGX_HTTP_MAIN_CONF_OFFSET, offsetof(filter_conf_t, prefix), NULL },
    { ngx_string("tare_filter_shm"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1, ngx_conf_set_str_slot,
      NGX_HTTP_MAIN_CONF_OFFSET, offsetof(filter_conf_t, shm), NULL },
    { ngx_string("tare_filter_status"), NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS, set_status, 0, 0,
      NULL },
    ngx_null_command,
};

static ngx_http_module_t context = {
    NULL, postconfiguration, create_main_conf, NULL, NULL, NULL, create_location_conf,
    merge_location_conf,
};

ngx_module_t ngx_http_tare_filter_module = {
    NGX_MODULE_V1, &context, commands, NGX_HTTP_MODULE, NULL, init_module, init_process, NULL,
    NULL, exit_process, NULL, NGX_MODULE_V1_PADDING,
};

/* Configuration */

static void *create_main_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool, sizeof(filter_conf_t));
}

static void *create_location_conf(ngx_conf_t *cf)
{
    location_conf_t *conf = ngx_pcalloc(cf->pool, sizeof(location_conf_t));
    if (conf != NULL) {
        conf->exempt = NGX_CONF_UNSET;
    }
    return conf;
}

static char *merge_location_conf(ngx_conf_t *cf, void *parent, void *child)
{
    location_conf_t *outer = parent, *inner = child;
    (void) cf;

    ngx_conf_merge_value(inner->exempt, outer->exempt, 0);
    return NGX_CONF_OK;
}

static char *set_filter(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    filter_conf_t *own = ngx_http_conf_get_module_main_conf(cf, ngx_http_tare_filter_module);
    ngx_str_t *words = cf->args->elts;
    (void) cmd;

    if (!(cf->cmd_type & NGX_HTTP_MAIN_CONF)) {
        location_conf_t *location = conf;
        if (ngx_strcmp(words[1].data, "off") != 0 || cf->args->nelts > 2) {
            return "is chosen for all of http; in a server or location it can be off";
        }
        location->exempt = 1;
        return NGX_CONF_OK;
    }
    if (own->kind != FILTER_OFF) {
        return "is given twice";
    }
    for (ngx_uint_t kind = FILTER_OFF; kind <= FILTER_LIBRARY; kind++) {
        if (ngx_strcmp(words[1].data, kind_names[kind]) != 0) {
            continue;
        }
        if (cf->args->nelts == 3) {
            if (kind != FILTER_LIBRARY) {
                return "takes a path with 'library' only";
            }
            own->path = words[2];
        }
        own->kind = kind;
        return NGX_CONF_OK;
    }
    return "is one of: off, identity, shm, library PATH";
}

static char *set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t *location;
    (void) cmd;
    (void) conf;

    location_conf_t *own = ngx_http_conf_get_module_loc_conf(cf, ngx_http_tare_filter_module);
    location = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    location->handler = status_handler;
    own->exempt = 1;
    return NGX_CONF_OK;
}

/* A directive's value, else the environment's. Both end with a zero byte. */
static ngx_str_t value_or_env(ngx_str_t value, const char *name)
{
    if (value.len == 0) {
        char *found = getenv(name);
        if (found != NULL) {
            value.data = (u_char *) found;
            value.len = ngx_strlen(found);
        }
    }
    return value;
}

/* Setting up: while the configuration is read, so that a reload that fails leaves all as it is */

static ngx_int_t complain(ngx_log_t *log, const char *what, const char *why)
{
    ngx_log_error(NGX_LOG_EMERG, log, 0, "tare_filter %s: %s", what, why);
    return NGX_ERROR;
}

static int ask_identity(const char *url, size_t length)
{
    (void) url;
    (void) length;
    return 1;
}

static int ask_shm(const char *url, size_t length)
{
    int accepts = shared_accepts(filter.shared, url, length);
    if (accepts >= 0) {
        *(accepts ? &filter.seat->accepted : &filter.seat->refused) += 1;
    }
    return accepts;
}

static int ask_library(const char *url, size_t length)
{
    (void) length;
    return filter.url_filter(url);
}

static ngx_int_t set_up_shm(ngx_log_t *log, filter_conf_t *conf, ngx_flag_t is_reload)
{
    char error[512];
    ngx_str_t name = value_or_env(conf->shm, "TARE_FILTER_SHM");

    next.shared = shared_open((char *) name.data, error, sizeof error);
    if (next.shared == NULL
        /* By the time of a reload the prefix may have been changed. */
        || (!is_reload
            && shared_agrees(next.shared, (char *) next.prefix.data, error, sizeof error) != 0))
    {
        return complain(log, "shm", error);
    }
    next.ask = ask_shm;
    return NGX_OK;
}

/* A symbol that the interface has, or the complaint that it is missing. */
static void *symbol(ngx_log_t *log, const char *path, const char *name)
{
    void *found = dlsym(next.library, name);
    if (found == NULL) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "tare_filter library: %s has no function %s, which the interface asks for",
                      path, name);
    }
    return found;
}

static ngx_int_t set_up_library(ngx_log_t *log, filter_conf_t *conf)
{
    ngx_str_t path = value_or_env(conf->path, "DYNAMIC_LOAD_LIB_PATH");
    if (path.len == 0) {
        return complain(log, "library", "which? give a path, or set DYNAMIC_LOAD_LIB_PATH");
    }
    if (next.prefix.len == 0) {
        return complain(log, "library", "no prefix: give tare_filter_prefix, or set "
                                          "DYNAMIC_LOAD_URL_PREFIX");
    }
    if (conf->shm.len > 0) {
        setenv("TARE_FILTER_SHM", (char *) conf->shm.data, 1);
    }
    next.library = dlopen((char *) path.data, RTLD_NOW | RTLD_LOCAL);
    if (next.library == NULL) {
        return complain(log, "library", dlerror());
    }
    int (*initialize)(const char *) = symbol(log, (char *) path.data, "module_initialize");
    next.url_filter = symbol(log, (char *) path.data, "module_url_filter");
    next.get_counters = symbol(log, (char *) path.data, "module_get_counters");
    if (initialize == NULL || next.url_filter == NULL || next.get_counters == NULL) {
        return NGX_ERROR;
    }
    int result = initialize((char *) next.prefix.data);
    if (result != 0) {
        const char *(*error)(void) = dlsym(next.library, "module_error");
        const char *why = error == NULL ? NULL : error();
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "tare_filter library: %s did not start (module_initialize returned %d)%s%s",
                      path.data, result, why == NULL ? "" : ": ", why == NULL ? "" : why);
        return NGX_ERROR;
    }
    const int *shared = dlsym(next.library, "module_counters_shared");
    next.counters_shared = shared != NULL && *shared != 0;
    next.ask = ask_library;
    return NGX_OK;
}

static ngx_int_t set_up(ngx_log_t *log, filter_conf_t *conf, ngx_flag_t is_reload)
{
    ngx_memzero(&next, sizeof next);
    next.kind = conf->kind;
    if (conf->kind == FILTER_OFF) {
        return NGX_OK;
    }
    next.prefix = value_or_env(conf->prefix, "DYNAMIC_LOAD_URL_PREFIX");
    if (next.prefix.len > TARE_PREFIX_MAX) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "tare_filter_prefix has %uz bytes; 1 to %d are allowed", next.prefix.len,
                      TARE_PREFIX_MAX);
        return NGX_ERROR;
    }
    next.places = mmap(NULL, WORKERS_MAX * sizeof(place_t), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (next.places == MAP_FAILED) {
        return complain(log, "status", strerror(errno));
    }
    switch (next.kind) {
    case FILTER_SHM:
        return set_up_shm(log, conf, is_reload);
    case FILTER_LIBRARY:
        return set_up_library(log, conf);
    default:
        next.ask = ask_identity;
        return NGX_OK;
    }
}

/* The configuration holds: from here on it is what new workers get. */
static ngx_int_t init_module(ngx_cycle_t *cycle)
{
    (void) cycle;
    filter = next;
    return NGX_OK;
}

/* Counting */

static place_t *own_place(void)
{
    return &filter.places[ngx_worker % WORKERS_MAX];
}

static void publish_counts(ngx_event_t *event)
{
    counts_t *now = &own_place()->now;
    (void) event;

    if (filter.kind == FILTER_LIBRARY) {
        filter.get_counters(&now->accepted, &now->refused);
    } else if (filter.kind == FILTER_SHM) {
        now->accepted = filter.seat->accepted;
        now->refused = filter.seat->refused;
    }
    /* Last: whoever reads this number finds the others as new. */
    __atomic_store_n(&now->seen, filter.seen, __ATOMIC_RELEASE);
}

/* Of all workers. */
static counts_t totals(void)
{
    counts_t sum = { 0, 0, 0 };
    for (ngx_uint_t at = 0; at < WORKERS_MAX; at++) {
        place_t *place = &filter.places[at];
        sum.seen += place->gone.seen + __atomic_load_n(&place->now.seen, __ATOMIC_ACQUIRE);
        sum.accepted += place->gone.accepted + place->now.accepted;
        sum.refused += place->gone.refused + place->now.refused;
    }
    if (filter.kind == FILTER_LIBRARY && filter.counters_shared) {
        filter.get_counters(&sum.accepted, &sum.refused);
    } else if (filter.kind == FILTER_SHM) {
        shared_totals(filter.shared, &sum.accepted, &sum.refused);
    }
    return sum;
}

static ngx_int_t init_process(ngx_cycle_t *cycle)
{
    /* Helpers of nginx come here too, and answer no requests. */
    if (filter.kind == FILTER_OFF
        || (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE))
    {
        return NGX_OK;
    }
    if (filter.kind == FILTER_SHM && (filter.seat = shared_sit(filter.shared)) == NULL) {
        return complain(cycle->log, "shm", "no seat is left: too many workers came and went; start the "
                                      "controller again");
    }
    place_t *place = own_place();
    place->gone.seen += place->now.seen;
    place->gone.accepted += place->now.accepted;
    place->gone.refused += place->now.refused;
    place->now = (counts_t) { 0, 0, 0 };
    filter.publish.handler = publish_counts;
    filter.publish.log = cycle->log;
    filter.publish.cancelable = 1;
    return NGX_OK;
}

static void exit_process(ngx_cycle_t *cycle)
{
    (void) cycle;
    if (filter.kind != FILTER_OFF && filter.seen > 0) {
        publish_counts(&filter.publish);
    }
}

/* Requests */

/* The URL as a C string: libraries take no length. Whole, however long it is. */
static const char *terminated(ngx_str_t *uri)
{
    if (uri->len >= filter.copy_size) {
        size_t size = ngx_max(uri->len + 1, 4096);
        char *more = realloc(filter.copy, size);
        if (more == NULL) {
            return NULL;
        }
        filter.copy = more;
        filter.copy_size = size;
    }
    ngx_memcpy(filter.copy, uri->data, uri->len);
    filter.copy[uri->len] = '\0';
    return filter.copy;
}

static ngx_int_t access_handler(ngx_http_request_t *r)
{
    location_conf_t *location;

    /* Parts that nginx itself adds to an accepted request are not asked about. What it redirects
     * to is: nobody may have asked about the first path. */
    if (r != r->main) {
        return NGX_DECLINED;
    }
    location = ngx_http_get_module_loc_conf(r, ngx_http_tare_filter_module);
    if (location->exempt) {
        return NGX_DECLINED;
    }
    filter.seen++;
    if (!filter.publish.timer_set) {
        ngx_add_timer(&filter.publish, PUBLISH_MS);
    }
    /* The path that nginx will serve: decoded, so that %61 does not get around an 'a'. */
    const char *url = terminated(&r->uri);
    int answer = url == NULL ? -1 : filter.ask(url, r->uri.len);
    if (answer == 1) {
        return NGX_DECLINED;
    }
    if (answer != 0 && filter.failed++ == 0) {
        ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0,
                      "tare_filter %s failed (%d) and refuses; it says so once",
                      kind_names[filter.kind], answer);
    }
    /* Ended here and not by the answer, which `satisfy any` could overrule. */
    ngx_http_finalize_request(r, NGX_HTTP_FORBIDDEN);
    return NGX_DONE;
}

static ngx_int_t status_handler(ngx_http_request_t *r)
{
    counts_t sum = { 0, 0, 0 };
    ngx_int_t result = ngx_http_discard_request_body(r);
    if (result != NGX_OK) {
        return result;
    }
    if (filter.kind != FILTER_OFF) {
        publish_counts(&filter.publish);
        sum = totals();
    }
    ngx_buf_t *buffer = ngx_create_temp_buf(r->pool, 256 + filter.prefix.len);
    if (buffer == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    buffer->last = ngx_sprintf(buffer->last,
                               "filter %s\nprefix %V\nseen %uL\naccepted %uL\nrefused %uL\n"
                               "failed %ui\n",
                               kind_names[filter.kind], &filter.prefix, sum.seen, sum.accepted,
                               sum.refused, filter.failed);
    buffer->last_buf = 1;
    buffer->last_in_chain = 1;
    ngx_str_set(&r->headers_out.content_type, "text/plain");
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = buffer->last - buffer->pos;
    result = ngx_http_send_header(r);
    if (result == NGX_ERROR || result > NGX_OK || r->header_only) {
        return result;
    }
    ngx_chain_t out = { buffer, NULL };
    return ngx_http_output_filter(r, &out);
}

static ngx_int_t postconfiguration(ngx_conf_t *cf)
{
    filter_conf_t *own = ngx_http_conf_get_module_main_conf(cf, ngx_http_tare_filter_module);
    if (set_up(cf->log, own, !ngx_is_init_cycle(cf->cycle->old_cycle)) != NGX_OK) {
        return NGX_ERROR;
    }
    if (own->kind == FILTER_OFF) {
        return NGX_OK;
    }
    ngx_http_core_main_conf_t *core =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_handler_pt *handler =
        ngx_array_push(&core->phases[NGX_HTTP_ACCESS_PHASE].handlers);
    if (handler == NULL) {
        return NGX_ERROR;
    }
    *handler = access_handler;
    return NGX_OK;
}
