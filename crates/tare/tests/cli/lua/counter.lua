-- Another path and header in each request.
counter = 0

request = function()
  local path = "/" .. counter
  wrk.headers["X-Counter"] = counter
  counter = counter + 1
  return wrk.format(nil, path)
end
