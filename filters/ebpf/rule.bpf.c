/* `ebpf`: the rule as eBPF. Its maps lie in the shared memory that `tare filter control` made: a
 * prefix that can change, and one seat of counters a process, as with any per-CPU map. */
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, type) typeof(type) *name

#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define PREFIX_MAX 127

typedef unsigned int u32;
typedef unsigned long long u64;

struct prefix {
    u32 generation;
    u32 length[2];
    char text[2][PREFIX_MAX + 1];
};

/* The URL, from its first byte to behind its last. */
struct context {
    const char *data;
    const char *data_end;
};

struct seat {
    u64 accepted;
    u64 refused;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct prefix);
} prefixes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct seat);
} seats SEC(".maps");

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *) 1;

/* 1 accepts, 0 refuses, 2 is a failure. */
SEC("uprobe/filter")
u64 filter(struct context *context)
{
    const char *url = context->data;
    u64 length = context->data_end - context->data;
    u32 zero = 0;
    volatile struct prefix *prefix = bpf_map_lookup_elem(&prefixes, &zero);
    struct seat *seat = bpf_map_lookup_elem(&seats, &zero);
    if (!prefix || !seat) {
        return 2;
    }
    for (int attempt = 0; attempt < 8; attempt++) {
        u32 before = prefix->generation;
        u32 at = before & 1;
        u32 n = prefix->length[at];
        u64 accepts = n <= PREFIX_MAX && n <= length;
        for (u32 i = 0; accepts && i < n && i < PREFIX_MAX; i++) {
            accepts = url[i] == prefix->text[at][i];
        }
        /* Once it has changed, the next change may be writing into this place already. */
        if (prefix->generation == before) {
            if (accepts) {
                seat->accepted++;
            } else {
                seat->refused++;
            }
            return accepts;
        }
    }
    return 2;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
