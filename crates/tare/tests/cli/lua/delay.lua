-- 10 to 50 ms of rest before the next request of a connection.
function delay()
  return math.random(10, 50)
end
