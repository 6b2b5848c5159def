-- The first and the last time, and all bytes.
SELECT min(time) AS first, max(time) AS last, CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes
FROM requests
