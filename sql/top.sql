-- The ten most requested URLs. A tie goes to the larger fingerprint, taken as an unsigned number.
SELECT concat(coalesce(min(host), ''), min(url)) AS url,
       count(*) AS requests,
       CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes
FROM requests
GROUP BY fingerprint
ORDER BY count(*) DESC, fingerprint < 0 DESC, fingerprint DESC
LIMIT 10
