-- The requests of wrk for a cache on disk: wrk … -s load.lua URL -- SIZE SET SEED
--
-- Requests random objects of SIZE bytes, whose total size is SET. The requests are built in advance, so that the client
-- needs only one table access per request.

local requests, keys

function init(args)
    local size, seed = args[1], args[3]
    keys = math.floor(tonumber(args[2]) / tonumber(size))
    requests = {}
    for key = 1, keys do
        requests[key] = "GET /o/" .. key .. "?size=" .. size .. " HTTP/1.1\r\nHost: bench\r\n\r\n"
    end
    math.randomseed(tonumber(seed))
    request = function() return requests[math.random(keys)] end
end
