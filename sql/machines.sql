-- Requests, bytes and the logged cache's hits by machine.
SELECT CAST(machine AS VARCHAR(300)) AS name,
       count(*) AS requests,
       CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes,
       count(*) FILTER (WHERE cache = 'hit') AS hits,
       count(*) FILTER (WHERE cache = 'miss') AS misses
FROM requests
WHERE machine IS NOT NULL
GROUP BY machine
ORDER BY requests DESC, name
