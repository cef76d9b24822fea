/* The rule as code that runs in a sandbox: no library, no pointer but the one it is given. Compiled
 * to WebAssembly for `wasm` and `wasm2c`, and as it is for `rlbox-noop`. */
#ifndef TARE_GUEST_H
#define TARE_GUEST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0 when taken. */
int guest_initialize(const char *prefix, uint32_t length);
int guest_filter(const char *url, uint32_t length);
uint64_t guest_accepted(void);
uint64_t guest_refused(void);

#ifdef __cplusplus
}
#endif

#endif
