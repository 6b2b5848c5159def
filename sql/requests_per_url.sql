-- The full histogram: the number of URLs for each number of requests.
SELECT n AS requests, count(*) AS urls
FROM (SELECT fingerprint, count(*) AS n FROM requests GROUP BY fingerprint) AS per_url
GROUP BY n
ORDER BY n
