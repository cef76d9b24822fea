-- `lua`: the rule in Lua, run by LuaJIT. The three functions of the interface, under their names.

local prefix, length
local accepted, refused = 0, 0

function module_initialize(text)
  prefix, length = text, #text
  return 0
end

function module_url_filter(url)
  if url:sub(1, length) == prefix then
    accepted = accepted + 1
    return 1
  end
  refused = refused + 1
  return 0
end

function module_get_counters()
  return accepted, refused
end
