# Starts a PostgreSQL server of Debian in a folder that is kept: postgres.sh FOLDER PORT
# Debian installs its programs outside PATH, and they refuse to run as root.
for bin in /usr/lib/postgresql/*/bin; do PATH=$bin:$PATH; done
mkdir -p "$1"
user=
if [ "$(id -u)" = 0 ]; then
    chown nobody "$1"
    user="setpriv --reuid nobody --regid nogroup --clear-groups"
fi
cd "$1" || exit
test -f data/PG_VERSION || $user initdb --auth=trust --username=edgeward --no-sync --encoding=UTF8 --no-locale \
    --pgdata data > /dev/null || exit
exec $user postgres -D data -p "$2" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off \
    -c max_wal_size=8GB -c maintenance_work_mem=1GB
