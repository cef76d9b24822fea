/* `shm`: prefix and counters in shared memory, as in the nginx module, behind the interface: for
 * `tare filter bench`, and for servers that load libraries. */
#include <pthread.h>

#include "shared.h"

static struct shared *shared;
static struct shared_seat *seat;
static char error[512];

const int module_counters_shared = 1;

static void leave_seat(void)
{
    seat = NULL;
}

int module_initialize(const char *prefix)
{
    shared = shared_open(getenv("TARE_FILTER_SHM"), error, sizeof error);
    if (shared == NULL || shared_agrees(shared, prefix, error, sizeof error) != 0) {
        return -1;
    }
    /* A child must not count in its parent's seat. */
    return pthread_atfork(NULL, NULL, leave_seat);
}

int module_url_filter(const char *url)
{
    if (seat == NULL && (seat = shared_sit(shared)) == NULL) {
        return -1;
    }
    int accepts = shared_accepts(shared, url, strlen(url));
    if (accepts < 0) {
        return -1;
    }
    *(accepts ? &seat->accepted : &seat->refused) += 1;
    return accepts;
}

void module_get_counters(uint64_t *accepted, uint64_t *refused)
{
    shared_totals(shared, accepted, refused);
}

const char *module_error(void)
{
    return error;
}
