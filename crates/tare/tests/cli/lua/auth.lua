-- Takes a token out of the first reply and sends it with every request that follows.
local token, path = nil, "/authenticate"
sent_with_token = 0

request = function()
  if token then sent_with_token = sent_with_token + 1 end
  return wrk.format("GET", path)
end

response = function(status, headers, body)
  if not token and status == 200 then
    token = headers["Server"]
    path = "/resource"
    wrk.headers["X-Token"] = token
  end
end

local threads = {}
function setup(thread) table.insert(threads, thread) end
function done()
  print("with token: " .. threads[1]:get("sent_with_token"))
end
