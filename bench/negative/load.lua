-- The requests of wrk: wrk … -s load.lua URL -- KIND KEYS IDS
--
-- hit     a random key out of KEYS; all are cached, so the filter is not queried
-- absent  a new id above IDS, which does not exist
--
-- Lua runs on wrk's core, and the CPU time of this core is not counted. A slow client would leave the server idle, so
-- the requests are built in advance.

local requests, count

function init(args)
    local kind, keys, ids = args[1], tonumber(args[2]), tonumber(args[3])
    requests = {}
    count = kind == "hit" and keys or 200000
    for n = 1, count do
        -- The factor 7919, a prime, spreads the ids.
        local id = kind == "hit" and n * 7919 % ids + 1 or ids + n * 7919
        requests[n] = string.format("GET /o/%d?size=1024 HTTP/1.1\r\nHost: bench\r\n\r\n", id)
    end
    math.randomseed(os.time())
    request = function() return requests[math.random(count)] end
end
