/* Files that a library needs: where the environment says, else beside the library itself. */
#ifndef TARE_BESIDE_H
#define TARE_BESIDE_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tare_filter.h"

/* Needs _GNU_SOURCE for dladdr. */
static inline void path_beside(char *path, size_t size, const char *variable, const char *name)
{
    const char *given = getenv(variable);
    Dl_info info;
    if (given != NULL && *given != '\0') {
        snprintf(path, size, "%s", given);
        return;
    }
    const char *own = dladdr((void *) &module_initialize, &info) != 0 ? info.dli_fname : "";
    const char *slash = strrchr(own, '/');
    int folder = slash == NULL ? 0 : (int) (slash - own) + 1;
    snprintf(path, size, "%.*s%s", folder, own, name);
}

#endif
