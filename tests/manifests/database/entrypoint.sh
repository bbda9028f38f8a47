#!/bin/sh
# The first start makes the database, as images of PostgreSQL do.
set -e
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    password=$(mktemp)
    printf '%s\n' "$POSTGRES_PASSWORD" > "$password"
    initdb --username="${POSTGRES_USER:-postgres}" --pwfile="$password" --auth-local=trust --auth-host=scram-sha-256
    rm "$password"
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
    echo "unix_socket_directories = '/tmp'" >> "$PGDATA/postgresql.conf"
fi
# What fsGroup gives to the group is more than PostgreSQL likes; images of PostgreSQL take it back, too.
[ "$1" != postgres ] || chmod 700 "$PGDATA"
exec "$@"
