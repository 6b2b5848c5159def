<?php
// A router script of the server in PHP. It decodes the path, as most frameworks do.
$path = rawurldecode(explode('?', $_SERVER['REQUEST_URI'])[0]);
echo str_starts_with($path, '/admin/') ? 'ADMIN' : (str_starts_with($path, '/account/') ? 'PRIVATE' : 'OTHER');
