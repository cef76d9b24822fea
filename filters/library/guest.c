#include "guest.h"

#include "tare_filter.h"

#ifdef __wasm__
#define EXPORTED(name) __attribute__((export_name(name)))

extern char __heap_base;

/* The address of so many free bytes, the same each time; 0 where memory cannot grow that far. */
EXPORTED("reserve") char *guest_reserve(uint32_t bytes)
{
    uint32_t start = (uint32_t) &__heap_base;
    uint32_t have = __builtin_wasm_memory_size(0) << 16;
    if (bytes > UINT32_MAX - start - 0xffff) {
        return 0;
    }
    if (start + bytes > have
        && __builtin_wasm_memory_grow(0, (start + bytes - have + 0xffff) >> 16) == (uint32_t) -1)
    {
        return 0;
    }
    return &__heap_base;
}
#else
#define EXPORTED(name)
#endif

static char rule_prefix[TARE_PREFIX_MAX];
static uint32_t rule_length;
static uint64_t accepted, refused;

EXPORTED("initialize") int guest_initialize(const char *prefix, uint32_t length)
{
    if (length == 0 || length > TARE_PREFIX_MAX) {
        return -1;
    }
    for (uint32_t at = 0; at < length; at++) {
        rule_prefix[at] = prefix[at];
    }
    rule_length = length;
    return 0;
}

EXPORTED("filter") int guest_filter(const char *url, uint32_t length)
{
    int accepts = length >= rule_length;
    for (uint32_t at = 0; accepts && at < rule_length; at++) {
        accepts = url[at] == rule_prefix[at];
    }
    *(accepts ? &accepted : &refused) += 1;
    return accepts;
}

EXPORTED("accepted") uint64_t guest_accepted(void)
{
    return accepted;
}

EXPORTED("refused") uint64_t guest_refused(void)
{
    return refused;
}
