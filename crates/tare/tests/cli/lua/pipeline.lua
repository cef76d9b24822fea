-- Three requests in one piece.
init = function(args)
  local requests = {}
  for i, path in ipairs({ "/?foo", "/?bar", "/?baz" }) do
    requests[i] = wrk.format(nil, path)
  end
  pipelined = table.concat(requests)
end

request = function()
  return pipelined
end
