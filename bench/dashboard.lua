-- Requests to 100 hosts in turn, each fifth to a script, with a pause before each: about as many a
-- second as there are connections, times 150.
dofile(debug.getinfo(1, "S").source:sub(2):match("(.*/)") .. "wrk_summary.lua")

local HOSTS, PAUSE_MS = 100, 6
local requests, at = {}, 0

function init()
  for number = 1, HOSTS do
    for part = 1, 5 do
      local path = part == 1 and "/hello.php" or "/hello.txt"
      local headers = {Host = string.format("p%03d", number)}
      requests[#requests + 1] = wrk.format("GET", path, headers)
    end
  end
end

function delay()
  return PAUSE_MS
end

function request()
  at = at % #requests + 1
  return requests[at]
end
