-- The `wrk` table that scripts see. `wrk.lookup` and `wrk.connect` come from the host program.
wrk = {
  scheme = "http", host = "localhost", port = nil,
  method = "GET", path = "/", headers = {}, body = nil,
  thread = nil, addrs = nil,
}

-- One request as bytes; what is nil is taken from `wrk`.
function wrk.format(method, path, headers, body)
  method, path = method or wrk.method, path or wrk.path
  headers, body = headers or wrk.headers, body or wrk.body
  local lines = { method .. " " .. path .. " HTTP/1.1" }
  if not headers["Host"] then
    lines[#lines + 1] = "Host: " .. tostring(wrk.headers["Host"])
  end
  for name, value in pairs(headers) do
    if not (body and name == "Content-Length") then
      lines[#lines + 1] = name .. ": " .. tostring(value)
    end
  end
  if body then lines[#lines + 1] = "Content-Length: " .. #body end
  lines[#lines + 1] = ""
  lines[#lines + 1] = body or ""
  return table.concat(lines, "\r\n")
end

-- Called for each thread, in the main state.
function wrk.setup(thread)
  thread.addr = wrk.addrs[1]
  if type(setup) == "function" then setup(thread) end
end

-- Called once in each thread's own state.
function wrk.init(args)
  if not wrk.headers["Host"] then
    local host = wrk.host
    if host:find(":", 1, true) then host = "[" .. host .. "]" end
    local usual = wrk.scheme == "https" and "443" or "80"
    if wrk.port and tostring(wrk.port) ~= usual then host = host .. ":" .. wrk.port end
    wrk.headers["Host"] = host
  end
  if type(init) == "function" then init(args) end
  local fixed = wrk.format()
  wrk.request = function() return fixed end
end
