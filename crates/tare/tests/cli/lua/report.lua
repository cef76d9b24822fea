-- Prints everything that `done` is given, in a form a test can read.
done = function(summary, latency, requests)
  print("summary", summary.duration > 0, summary.requests, summary.bytes)
  local e = summary.errors
  print("errors", e.connect, e.read, e.write, e.status, e.timeout)
  print("rising", latency.min <= latency:percentile(50)
    and latency:percentile(50) <= latency:percentile(99)
    and latency:percentile(99.999) <= latency.max)
  local total = 0
  for i = 1, #latency do
    local value, count = latency(i)
    total = total + count
  end
  print("counted", total == summary.requests, latency.mean > 0, latency.stdev >= 0)
  print("rate", requests.max >= requests.min)
end
