-- Each thread connects to one of the addresses that answer.
local addrs

function setup(thread)
  if not addrs then
    addrs = wrk.lookup(wrk.host, wrk.port or "http")
    for i = #addrs, 1, -1 do
      if not wrk.connect(addrs[i]) then table.remove(addrs, i) end
    end
  end
  thread.addr = addrs[math.random(#addrs)]
end

function init(args)
  print(("thread addr: %s"):format(wrk.thread.addr))
end
