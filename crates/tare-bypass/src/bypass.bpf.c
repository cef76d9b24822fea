// Puts what one end of a TCP connection writes straight into the other end's receive queue, if both
// are in one network namespace.
//
// The ends of a redirected connection see different addresses: the dialler sees the one it dialled,
// the other end its own. Both know the dialler's own address. A dialler is therefore stored under
// that address, and paired with the end that accepts it, which comes right after: on a local
// connection one packet establishes both.
//
// Only IPv4: other families stay with TCP.

#include <linux/bpf.h>
#include <linux/types.h>

// Helpers of the kernel, by their numbers in linux/bpf.h.
static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static long (*sock_ops_flags)(struct bpf_sock_ops *socket, int flags) = (void *)59;
static long (*sock_hash_update)(struct bpf_sock_ops *socket, void *map, void *key,
				__u64 flags) = (void *)70;
static long (*msg_redirect)(struct sk_msg_md *message, void *map, void *key,
			    __u64 flags) = (void *)71;
static __u64 (*netns_cookie)(void *context) = (void *)122;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
// Map attributes, which libraries that load BPF read from type information.
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) type *name

#define IPV4 2
#define CLOSED 7
#define ENTRIES 65536

// A socket, by the addresses that it sees itself.
struct end {
	__u64 netns;
	__u32 own_ip, own_port;
	__u32 other_ip, other_port;
};

// Key by which the accepting end finds its dialler.
struct dialler {
	__u64 netns;
	__u32 ip, port;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_SOCKHASH);
	NUMBER(max_entries, ENTRIES);
	TYPE(key, struct end);
	TYPE(value, __u32);
} sockets SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, ENTRIES);
	TYPE(key, struct dialler);
	TYPE(value, struct end);
} dialling SECTION(".maps");

// Maps each end to the other, both ways.
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, ENTRIES);
	TYPE(key, struct end);
	TYPE(value, struct end);
} other_end SECTION(".maps");

// In the order of `Counts` in lib.rs.
enum count { PAIRED, REDIRECTED, PASSED, REFUSED, COUNTS };

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, COUNTS);
	TYPE(key, __u32);
	TYPE(value, __u64);
} counts SECTION(".maps");

INLINE void add_one(__u32 which)
{
	__u64 *count = map_lookup(&counts, &which);
	if (count)
		*count += 1;
}

INLINE void keep(struct bpf_sock_ops *socket, struct end *own)
{
	sock_ops_flags(socket, BPF_SOCK_OPS_STATE_CB_FLAG);
	sock_hash_update(socket, &sockets, own, BPF_ANY);
}

INLINE void on_dialled(struct bpf_sock_ops *socket, struct end *own)
{
	struct dialler me = {own->netns, own->own_ip, own->own_port};
	map_update(&dialling, &me, own, BPF_ANY);
	keep(socket, own);
}

INLINE void on_accepted(struct bpf_sock_ops *socket, struct end *own)
{
	struct dialler from = {own->netns, own->other_ip, own->other_port};
	struct end *found = map_lookup(&dialling, &from);
	if (!found)
		return; // The dialler is in another namespace or control group.
	struct end other = *found;
	map_delete(&dialling, &from);
	map_update(&other_end, own, &other, BPF_ANY);
	map_update(&other_end, &other, own, BPF_ANY);
	keep(socket, own);
	add_one(PAIRED);
}

SECTION("sockops")
int watch(struct bpf_sock_ops *socket)
{
	if (socket->family != IPV4)
		return 1;
	struct end own = {
		netns_cookie(socket),
		socket->local_ip4,
		socket->local_port,
		socket->remote_ip4,
		__builtin_bswap32(socket->remote_port),
	};
	switch (socket->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		on_dialled(socket, &own);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		on_accepted(socket, &own);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (socket->args[1] == CLOSED)
			map_delete(&other_end, &own);
		break;
	}
	return 1;
}

SECTION("sk_msg")
int bypass(struct sk_msg_md *message)
{
	struct end own = {
		netns_cookie(message),
		message->local_ip4,
		message->local_port,
		message->remote_ip4,
		__builtin_bswap32(message->remote_port),
	};
	struct end *found = map_lookup(&other_end, &own);
	if (!found) {
		add_one(PASSED);
		return SK_PASS;
	}
	struct end other = *found;
	long redirected = msg_redirect(message, &sockets, &other, BPF_F_INGRESS);
	// If the other end is gone, TCP reports it.
	add_one(redirected == SK_PASS ? REDIRECTED : REFUSED);
	return SK_PASS;
}

char licence[] SECTION("license") = "GPL";
