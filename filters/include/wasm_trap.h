/* Before wabt's runtime is compiled: who is told of a trap. */
#include <wasm-rt.h>

void tare_wasm_trap(wasm_rt_trap_t code);
