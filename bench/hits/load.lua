-- The requests of wrk: wrk … -s load.lua URL -- KIND SIZE KEYS TAG kept|new
--
-- hit   a random key out of KEYS; the requests are built in advance
-- miss  a new key; the response is storable
-- pass  a new key; the origin sends no-store
--
-- new   the server closes the connection after each response, and wrk opens another
--
-- TAG makes the keys of this run unique. Lua runs on wrk's core, and the CPU time of this core is not counted. A slow
-- client would leave the server idle, so a request needs only one table access or one short concatenation.

local requests, keys, head, tail, sent

function init(args)
    local kind, size, tag = args[1], args[2], args[4]
    keys = tonumber(args[3])
    local close = args[5] == "new" and "Connection: close\r\n" or ""
    tail = " HTTP/1.1\r\nHost: bench\r\n" .. close .. "\r\n"
    if kind == "hit" then
        requests = {}
        for key = 1, keys do
            requests[key] = "GET /h/" .. size .. "/" .. key .. tail
        end
        math.randomseed(tonumber(tag))
        request = function() return requests[math.random(keys)] end
    else
        head = (kind == "miss" and "GET /m/" or "GET /p/") .. size .. "/" .. tag .. "-"
        sent = 0
        request = function()
            sent = sent + 1
            return head .. sent .. tail
        end
    end
end
