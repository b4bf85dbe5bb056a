#!/bin/sh
exec node /opt/portcullis/dist/cli/main.js "$@"
