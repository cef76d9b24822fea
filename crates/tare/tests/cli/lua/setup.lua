-- Values pass between the program and its threads.
local counter, threads = 1, {}

function setup(thread)
  thread:set("id", counter)
  thread:set("options", { nested = { yes = true }, 7 })
  table.insert(threads, thread)
  counter = counter + 1
end

function init(args)
  requests, responses = 0, 0
  print(("thread %d created, args %s"):format(id, table.concat(args, " ", 0)))
  assert(options.nested.yes == true and options[1] == 7)
end

function request()
  requests = requests + 1
  return wrk.request()
end

function response()
  responses = responses + 1
end

function done(summary, latency, requests)
  local sum = 0
  for _, thread in ipairs(threads) do
    print(("thread %d made %d requests, got %d responses")
      :format(thread:get("id"), thread:get("requests"), thread:get("responses")))
    sum = sum + thread:get("responses")
  end
  print("all responses seen", sum >= summary.requests)
end
