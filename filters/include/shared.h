/* What `tare filter control` and the filters share: a prefix that can change at any time, and
 * counters. An object in /dev/shm, made by the controller; crates/tare-lab/src/filters/shared.rs is
 * its other side.
 *
 * The prefix is in one of two places; `generation` says in which, so that the controller writes
 * into the other and then turns. Each process counts in a seat of its own, without atomic
 * operations; sums are made by whoever reads.
 */
#ifndef TARE_SHARED_H
#define TARE_SHARED_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tare_filter.h"

#define TARE_SHARED_MAGIC 0x31657261742d6673ull /* "sf-tare1" */
#define TARE_SEATS 256

struct shared_prefix {
    uint32_t generation;
    uint32_t length[2];
    char text[2][TARE_PREFIX_MAX + 1];
};

struct shared_seat {
    uint64_t accepted;
    uint64_t refused;
    char padding[48]; /* a cache line each */
};

struct shared {
    uint64_t magic;
    uint32_t owner_pid;
    uint32_t seats_taken;
    struct shared_prefix prefix;
    char padding[4096 - 16 - sizeof(struct shared_prefix)];
    struct shared_seat seats[TARE_SEATS];
};

/* Maps the object of that name; NULL and the reason where that cannot be. */
static inline struct shared *shared_open(const char *name, char *error, size_t error_size)
{
    char path[256];
    struct stat status;
    if (name == NULL || *name == '\0' || strchr(name, '/') != NULL) {
        snprintf(error, error_size, "no shared memory is named: give tare_filter_shm NAME, or set "
                 "TARE_FILTER_SHM");
        return NULL;
    }
    snprintf(path, sizeof path, "/dev/shm/%s", name);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        snprintf(error, error_size, "%s: %s: start `tare filter control` first", path,
                 strerror(errno));
        return NULL;
    }
    if (fstat(file, &status) != 0 || (size_t) status.st_size != sizeof(struct shared)) {
        snprintf(error, error_size, "%s is not shared memory of this version of tare", path);
        close(file);
        return NULL;
    }
    void *at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) {
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
        return NULL;
    }
    struct shared *shared = at;
    if (shared->magic != TARE_SHARED_MAGIC) {
        snprintf(error, error_size, "%s is not shared memory of tare", path);
        munmap(at, sizeof(struct shared));
        return NULL;
    }
    return shared;
}

/* A seat for this process; NULL when all were given away. */
static inline struct shared_seat *shared_sit(struct shared *shared)
{
    uint32_t seat = __atomic_fetch_add(&shared->seats_taken, 1, __ATOMIC_RELAXED);
    return seat < TARE_SEATS ? &shared->seats[seat] : NULL;
}

/* 1 accepts, 0 refuses; -1 when the prefix changed again and again while it was read. */
static inline int shared_accepts(const struct shared *shared, const char *url, size_t length)
{
    const struct shared_prefix *prefix = &shared->prefix;
    for (int attempt = 0; attempt < 100; attempt++) {
        uint32_t before = __atomic_load_n(&prefix->generation, __ATOMIC_ACQUIRE);
        uint32_t at = before & 1, n = prefix->length[at];
        int accepts = n <= TARE_PREFIX_MAX && length >= n && memcmp(url, prefix->text[at], n) == 0;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        /* Once it has changed, the next change may be writing into this place already. */
        if (__atomic_load_n(&prefix->generation, __ATOMIC_RELAXED) == before) {
            return accepts;
        }
    }
    return -1;
}

/* `prefix` of the caller, if any, must be the controller's. */
static inline int shared_agrees(const struct shared *shared, const char *prefix, char *error,
                                size_t error_size)
{
    const struct shared_prefix *own = &shared->prefix;
    uint32_t at = own->generation & 1;
    if (prefix == NULL || *prefix == '\0' || strcmp(prefix, own->text[at]) == 0) {
        return 0;
    }
    snprintf(error, error_size, "the prefix is '%s' here and '%s' at the controller", prefix,
             own->text[at]);
    return -1;
}

static inline void shared_totals(const struct shared *shared, uint64_t *accepted,
                                 uint64_t *refused)
{
    uint64_t a = 0, r = 0;
    for (size_t seat = 0; seat < TARE_SEATS; seat++) {
        a += __atomic_load_n(&shared->seats[seat].accepted, __ATOMIC_RELAXED);
        r += __atomic_load_n(&shared->seats[seat].refused, __ATOMIC_RELAXED);
    }
    *accepted = a;
    *refused = r;
}

#endif
