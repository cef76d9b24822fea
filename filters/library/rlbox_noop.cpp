// `rlbox-noop`: the rule on the other side of a boundary of tainted types, without isolation.
#include <cstdint>
#include <cstdio>

#include "guest.h"
#include "tainted.hpp"
#include "tare_filter.h"

namespace {

boundary::Sandbox<boundary::NoIsolation> sandbox;
boundary::Block url_block;
char error[256];

int fail(const char *why)
{
    std::snprintf(error, sizeof error, "%s", why);
    return -1;
}

// Room in steps, so that URLs of mixed lengths do not ask for more each time.
std::size_t rounded(std::size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

} // namespace

int module_initialize(const char *prefix)
{
    const std::size_t length = prefix == nullptr ? 0 : std::strlen(prefix);
    if (length == 0 || length > TARE_PREFIX_MAX) {
        std::snprintf(error, sizeof error, "the prefix has %zu bytes; 1 to %d are allowed", length,
                      TARE_PREFIX_MAX);
        return -1;
    }
    if (!sandbox.reserve(url_block, rounded(length)) || !sandbox.copy_in(url_block, prefix, length)) {
        return fail("no memory in the sandbox");
    }
    const bool taken = sandbox.invoke(guest_initialize, url_block, std::uint32_t(length))
                           .copy_and_verify([](int result) { return result == 0; });
    return taken ? 0 : fail("the sandboxed library refused the prefix");
}

int module_url_filter(const char *url)
{
    const std::size_t length = std::strlen(url);
    if (length > UINT32_MAX || !sandbox.reserve(url_block, rounded(length + 1))
        || !sandbox.copy_in(url_block, url, length)) {
        return -1;
    }
    return sandbox.invoke(guest_filter, url_block, std::uint32_t(length))
        .copy_and_verify([](int answer) { return answer == 0 || answer == 1 ? answer : -1; });
}

void module_get_counters(std::uint64_t *accepted, std::uint64_t *refused)
{
    // Any number is as good as another: nothing depends on it but what is shown.
    const auto as_it_is = [](std::uint64_t value) { return value; };
    *accepted = sandbox.invoke(guest_accepted).copy_and_verify(as_it_is);
    *refused = sandbox.invoke(guest_refused).copy_and_verify(as_it_is);
}

const char *module_error(void)
{
    return error;
}
