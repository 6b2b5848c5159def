-- Objects that had a complete answer, their bytes, and what of it was asked for once: what a disk that
-- stores at the second request need not write.
SELECT count(*) AS objects,
       CAST(coalesce(sum(size), 0) AS BIGINT) AS bytes,
       count(*) FILTER (WHERE n = 1) AS once,
       CAST(coalesce(sum(size) FILTER (WHERE n = 1), 0) AS BIGINT) AS once_bytes
FROM (SELECT count(*) AS n,
             max(coalesce(bytes, 0)) FILTER (WHERE status = 200 AND method = 'GET') AS size
      FROM requests
      GROUP BY fingerprint) AS per_url
WHERE size IS NOT NULL
