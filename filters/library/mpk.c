/* `mpk`: prefix and counters in a memory domain of a protection key, in ERIM's manner. All code may
 * read the domain; it is written only between `gate_open` and `gate_close`, each one WRPKRU whose
 * effect is checked after it. At start the library is scanned for other instructions that could
 * change rights. Without protection keys it does not start. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rule.h"

#define DOMAIN_BYTES 4096

struct domain {
    struct rule rule;
    uint64_t accepted;
    uint64_t refused;
};

static struct domain *domain;
static int key = -1;
/* The rights register inside the gate and outside of it: a page of their own, at an address that
 * the code knows without a pointer, made read-only once they are known. */
static struct {
    uint32_t inside;
    uint32_t outside;
    char padding[DOMAIN_BYTES - 2 * sizeof(uint32_t)];
} rights __attribute__((aligned(DOMAIN_BYTES)));
static char error[512];

/* Both gates jump back to WRPKRU until the register holds what they meant to put there: whoever
 * jumps onto the instruction with rights of his own choice does not get further. The labels tell
 * the scan where WRPKRU may be. */
__attribute__((noinline)) static void gate_open(void)
{
    __asm__ volatile("1: mov %0, %%eax\n"
                     "xor %%ecx, %%ecx\n"
                     "xor %%edx, %%edx\n"
                     ".globl tare_gate_open\n.hidden tare_gate_open\n"
                     "tare_gate_open: wrpkru\n"
                     "cmp %0, %%eax\n"
                     "jne 1b\n"
                     :
                     : "m"(rights.inside)
                     : "eax", "ecx", "edx", "memory", "cc");
}

__attribute__((noinline)) static void gate_close(void)
{
    __asm__ volatile("1: mov %0, %%eax\n"
                     "xor %%ecx, %%ecx\n"
                     "xor %%edx, %%edx\n"
                     ".globl tare_gate_close\n.hidden tare_gate_close\n"
                     "tare_gate_close: wrpkru\n"
                     "cmp %0, %%eax\n"
                     "jne 1b\n"
                     :
                     : "m"(rights.outside)
                     : "eax", "ecx", "edx", "memory", "cc");
}

extern const unsigned char tare_gate_open[], tare_gate_close[];

static uint32_t read_rights(void)
{
    uint32_t value;
    __asm__ volatile("rdpkru" : "=a"(value) : "c"(0) : "edx");
    return value;
}

/* WRPKRU is 0F 01 EF; XRSTOR with memory, which loads the register too, is 0F AE /5. */
static int changes_rights(const unsigned char *code)
{
    if (code[0] != 0x0f) {
        return 0;
    }
    return (code[1] == 0x01 && code[2] == 0xef)
           || (code[1] == 0xae && (code[2] & 0x38) == 0x28 && code[2] < 0xc0);
}

/* At any byte, not only where instructions begin: a jump can land anywhere. */
static int scan(struct dl_phdr_info *info, size_t size, void *own)
{
    (void) size;
    int is_own = 0;
    for (int at = 0; at < info->dlpi_phnum; at++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[at];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        is_own |= part->p_type == PT_LOAD && (uintptr_t) own >= start
                  && (uintptr_t) own < start + part->p_memsz;
    }
    for (int at = 0; is_own && at < info->dlpi_phnum; at++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[at];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) {
            continue;
        }
        const unsigned char *code = (const unsigned char *) info->dlpi_addr + part->p_vaddr;
        for (size_t byte = 0; byte + 3 <= part->p_memsz; byte++) {
            const unsigned char *here = code + byte;
            if (changes_rights(here) && here != tare_gate_open && here != tare_gate_close) {
                snprintf(error, sizeof error,
                         "the library has an instruction outside its gates that changes "
                         "protection rights, at offset 0x%zx",
                         (size_t) (here - (const unsigned char *) info->dlpi_addr));
                return -1;
            }
        }
    }
    return 0;
}

static int failed(const char *what)
{
    snprintf(error, sizeof error, "%s: %s: protection keys cannot be used, and without them this "
             "filter does not run", what, strerror(errno));
    return -1;
}

static int make_domain(void)
{
    /* New keys are closed for all access until the gates say otherwise. */
    key = pkey_alloc(0, PKEY_DISABLE_WRITE);
    if (key < 0) {
        return failed("pkey_alloc");
    }
    void *page = mmap(NULL, DOMAIN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);
    if (page == MAP_FAILED) {
        return failed("mmap");
    }
    rights.outside = read_rights();
    rights.inside = rights.outside & ~(3u << (2 * key));
    if (((rights.outside >> (2 * key)) & 3) != PKEY_DISABLE_WRITE) {
        snprintf(error, sizeof error, "the domain is not closed for writing after pkey_alloc");
        return -1;
    }
    if (mprotect(&rights, sizeof rights, PROT_READ) != 0) {
        return failed("mprotect");
    }
    if (pkey_mprotect(page, DOMAIN_BYTES, PROT_READ | PROT_WRITE, key) != 0) {
        return failed("pkey_mprotect");
    }
    /* Last: from here on it counts as protected. */
    domain = page;
    return 0;
}

int module_initialize(const char *prefix)
{
    struct rule rule;
    if (rule_set(&rule, prefix, error, sizeof error) != 0
        || dl_iterate_phdr(scan, (void *) &module_initialize) != 0
        || (domain == NULL && make_domain() != 0))
    {
        return -1;
    }
    gate_open();
    domain->rule = rule;
    gate_close();
    return 0;
}

int module_url_filter(const char *url)
{
    int accepts = rule_accepts(&domain->rule, url);
    gate_open();
    *(accepts ? &domain->accepted : &domain->refused) += 1;
    gate_close();
    return accepts;
}

void module_get_counters(uint64_t *accepted, uint64_t *refused)
{
    *accepted = domain->accepted;
    *refused = domain->refused;
}

const char *module_error(void)
{
    return error;
}

/* For the test that a write from outside the gates faults. */
TARE_EXPORT void *tare_mpk_domain(void)
{
    return domain;
}

#ifdef TARE_TEST_STRAY
/* For the test that the scan finds this. */
__attribute__((used)) static void stray(void)
{
    __asm__ volatile(".byte 0x0f, 0x01, 0xef");
}
#endif
