/* The rule of all filters: a URL is accepted when it begins with the prefix. */
#ifndef TARE_RULE_H
#define TARE_RULE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tare_filter.h"

struct rule {
    size_t length;
    char prefix[TARE_PREFIX_MAX + 1];
};

/* What every filter refuses to start with: nothing to say no to, or more than it can hold. */
static inline int rule_set(struct rule *rule, const char *prefix, char *error, size_t error_size)
{
    size_t length = prefix == NULL ? 0 : strlen(prefix);
    if (length == 0 || length > TARE_PREFIX_MAX) {
        snprintf(error, error_size, "the prefix has %zu bytes; 1 to %d are allowed", length,
                 TARE_PREFIX_MAX);
        return -1;
    }
    memcpy(rule->prefix, prefix, length + 1);
    rule->length = length;
    return 0;
}

static inline int rule_accepts(const struct rule *rule, const char *url)
{
    return strncmp(url, rule->prefix, rule->length) == 0;
}

#endif
