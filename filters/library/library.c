/* `library`: the rule in plain C, behind dlopen. */
#include "rule.h"

static struct rule rule;
static uint64_t accepted, refused;
static char error[256];

int module_initialize(const char *prefix)
{
    return rule_set(&rule, prefix, error, sizeof error);
}

int module_url_filter(const char *url)
{
    int accepts = rule_accepts(&rule, url);
    *(accepts ? &accepted : &refused) += 1;
    return accepts;
}

void module_get_counters(uint64_t *a, uint64_t *r)
{
    *a = accepted;
    *r = refused;
}

const char *module_error(void)
{
    return error;
}
