/* `lua`: calls the three functions of a Lua script, $LUA_MODULE_PATH or filter.lua beside this
 * library, in LuaJIT. */
#define _GNU_SOURCE
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "beside.h"
#include "rule.h"

static lua_State *lua;
static int url_filter, get_counters;
static char error[1024];

/* Takes what Lua says as the reason. */
static int failed(const char *path, const char *why)
{
    snprintf(error, sizeof error, "%s: %s", path, why == NULL ? "an error without words" : why);
    if (lua != NULL) {
        lua_close(lua);
        lua = NULL;
    }
    return -1;
}

static int global_function(const char *name)
{
    lua_getglobal(lua, name);
    if (!lua_isfunction(lua, -1)) {
        return LUA_NOREF;
    }
    return luaL_ref(lua, LUA_REGISTRYINDEX);
}

int module_initialize(const char *prefix)
{
    char path[4096];
    struct rule rule;

    if (rule_set(&rule, prefix, error, sizeof error) != 0) {
        return -1;
    }
    path_beside(path, sizeof path, "LUA_MODULE_PATH", "filter.lua");
    lua = luaL_newstate();
    if (lua == NULL) {
        return failed(path, "no memory");
    }
    luaL_openlibs(lua);
    if (luaL_loadfile(lua, path) != 0 || lua_pcall(lua, 0, 0, 0) != 0) {
        return failed(path, lua_tostring(lua, -1));
    }
    int initialize = global_function("module_initialize");
    url_filter = global_function("module_url_filter");
    get_counters = global_function("module_get_counters");
    if (initialize == LUA_NOREF || url_filter == LUA_NOREF || get_counters == LUA_NOREF) {
        return failed(path, "it must define module_initialize, module_url_filter and "
                            "module_get_counters");
    }
    lua_rawgeti(lua, LUA_REGISTRYINDEX, initialize);
    lua_pushstring(lua, rule.prefix);
    if (lua_pcall(lua, 1, 1, 0) != 0) {
        return failed(path, lua_tostring(lua, -1));
    }
    if (lua_tointeger(lua, -1) != 0) {
        return failed(path, "module_initialize did not return 0");
    }
    lua_settop(lua, 0);
    return 0;
}

int module_url_filter(const char *url)
{
    lua_rawgeti(lua, LUA_REGISTRYINDEX, url_filter);
    lua_pushstring(lua, url);
    if (lua_pcall(lua, 1, 1, 0) != 0 || !lua_isnumber(lua, -1)) {
        lua_settop(lua, 0);
        return -1;
    }
    int answer = (int) lua_tointeger(lua, -1);
    lua_settop(lua, 0);
    return answer;
}

void module_get_counters(uint64_t *accepted, uint64_t *refused)
{
    *accepted = *refused = 0;
    lua_rawgeti(lua, LUA_REGISTRYINDEX, get_counters);
    if (lua_pcall(lua, 0, 2, 0) == 0) {
        *accepted = (uint64_t) lua_tonumber(lua, -2);
        *refused = (uint64_t) lua_tonumber(lua, -1);
    }
    lua_settop(lua, 0);
}

const char *module_error(void)
{
    return error;
}
