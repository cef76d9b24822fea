/* `identity`: answers without looking and counts; what a call through the interface costs. */
#include <stddef.h>

#include "tare_filter.h"

static uint64_t accepted;

int module_initialize(const char *prefix)
{
    (void) prefix;
    return 0;
}

int module_url_filter(const char *url)
{
    (void) url;
    accepted++;
    return 1;
}

void module_get_counters(uint64_t *a, uint64_t *r)
{
    *a = accepted;
    *r = 0;
}

const char *module_error(void)
{
    return NULL;
}
