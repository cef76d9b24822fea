/* `wasm2c`: the sandboxed rule as WebAssembly that wabt's wasm2c turned into C. A trap ends the
 * process: there is no answer that it could give. */
#include <stdlib.h>

#include "rule.h"
#include "rule_wasm.h"

static Z_rule_instance_t instance;
static char error[256];

/* Called by wabt's runtime instead of jumping back, which would cost a system call on each call. */
void tare_wasm_trap(wasm_rt_trap_t code)
{
    fprintf(stderr, "tare_filter wasm2c: %s\n", wasm_rt_strerror(code));
    abort();
}

/* Copies into the sandbox; 0 where there is no room. */
static u32 copy_in(const char *text, size_t length)
{
    wasm_rt_memory_t *memory = Z_ruleZ_memory(&instance);
    if (length > UINT32_MAX) {
        return 0;
    }
    /* What the sandbox says is not believed: it must lie in the sandbox. */
    u32 at = Z_ruleZ_reserve(&instance, (u32) length);
    if (at == 0 || (uint64_t) at + length > memory->size) {
        return 0;
    }
    memcpy(memory->data + at, text, length);
    return at;
}

int module_initialize(const char *prefix)
{
    struct rule rule;
    if (rule_set(&rule, prefix, error, sizeof error) != 0) {
        return -1;
    }
    if (!wasm_rt_is_initialized()) {
        wasm_rt_init();
        Z_rule_init_module();
        Z_rule_instantiate(&instance);
    }
    u32 at = copy_in(rule.prefix, rule.length);
    if (at == 0 || Z_ruleZ_initialize(&instance, at, (u32) rule.length) != 0) {
        snprintf(error, sizeof error, "the sandboxed rule refused the prefix");
        return -1;
    }
    return 0;
}

int module_url_filter(const char *url)
{
    size_t length = strlen(url);
    u32 at = copy_in(url, length);
    return at == 0 ? -1 : (int) Z_ruleZ_filter(&instance, at, (u32) length);
}

void module_get_counters(uint64_t *accepted, uint64_t *refused)
{
    *accepted = Z_ruleZ_accepted(&instance);
    *refused = Z_ruleZ_refused(&instance);
}

const char *module_error(void)
{
    return error;
}
