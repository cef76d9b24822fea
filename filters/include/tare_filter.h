/* The published interface of URL filter plug-ins: three functions, of which every plug-in has all.
 *
 * Two more symbols are tare's own. A plug-in without them works as well; one with them can say why
 * it did not start, and that its counters are those of all processes together.
 */
#ifndef TARE_FILTER_H
#define TARE_FILTER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARE_EXPORT __attribute__((visibility("default")))

/* The longest prefix that filters take, in bytes. */
#define TARE_PREFIX_MAX 127

/* Accept URLs that begin with `prefix`. Returns 0 when ready. */
TARE_EXPORT int module_initialize(const char *prefix);

/* 1 accepts, 0 refuses; everything else is a failure, and refuses too. */
TARE_EXPORT int module_url_filter(const char *url);

TARE_EXPORT void module_get_counters(uint64_t *accepted, uint64_t *refused);

/* Optional: why module_initialize did not return 0, in one line. */
TARE_EXPORT const char *module_error(void);

/* Optional: not 0 where counters are one for all processes. Without it each has its own. */
TARE_EXPORT extern const int module_counters_shared;

#ifdef __cplusplus
}
#endif

#endif
