// Tainted types in RLBox's manner: what comes from the other side of a boundary cannot be used
// before it was checked, and nothing crosses but by copy. With `NoIsolation` the other side is the
// same address space: the price of the checks alone.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

namespace boundary {

// A value from the other side. It has no conversion: the only way out is through a check.
template <typename T> class Tainted {
    static_assert(std::is_scalar_v<T>, "structures cross field by field");

  public:
    // `check` gets a copy that the other side cannot change any more.
    template <typename Check> auto copy_and_verify(Check &&check) const
    {
        const T copy = value;
        return std::forward<Check>(check)(copy);
    }

  private:
    explicit Tainted(T raw) : value(raw) {}
    T value;
    template <typename Isolation> friend class Sandbox;
};

// Memory of the other side. It is written through `Sandbox::copy_in`, which knows its size.
class Block {
  public:
    Block() = default;
    std::size_t size() const { return bytes; }

  private:
    char *start = nullptr;
    std::size_t bytes = 0;
    template <typename Isolation> friend class Sandbox;
};

// How the other side is reached: here by plain calls, in plain memory.
struct NoIsolation {
    static void *allocate(std::size_t bytes) { return std::malloc(bytes); }
    static void release(void *memory) { std::free(memory); }
    static bool contains(const void *memory) { return memory != nullptr; }
    template <typename Result, typename... Arguments>
    static Result call(Result (*function)(Arguments...), Arguments... arguments)
    {
        return function(arguments...);
    }
};

template <typename Isolation> class Sandbox {
  public:
    // Makes room for at least so many bytes; false where there is none.
    bool reserve(Block &block, std::size_t bytes)
    {
        if (block.bytes >= bytes) {
            return true;
        }
        void *more = Isolation::allocate(bytes);
        if (!Isolation::contains(more)) {
            return false;
        }
        Isolation::release(block.start);
        block.start = static_cast<char *>(more);
        block.bytes = bytes;
        return true;
    }

    bool copy_in(Block &block, const void *from, std::size_t bytes)
    {
        if (bytes > block.bytes || !Isolation::contains(block.start)) {
            return false;
        }
        std::memcpy(block.start, from, bytes);
        return true;
    }

    // Calls a function of the other side with a block and scalars.
    template <typename Result, typename... Rest>
    Tainted<Result> invoke(Result (*function)(const char *, Rest...), const Block &block,
                           Rest... rest)
    {
        return Tainted<Result>(Isolation::call(function, static_cast<const char *>(block.start),
                                               rest...));
    }

    template <typename Result> Tainted<Result> invoke(Result (*function)())
    {
        return Tainted<Result>(Isolation::call(function));
    }
};

} // namespace boundary
