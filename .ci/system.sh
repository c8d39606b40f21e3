#!/bin/sh
# The few system libraries that pip can't bring. Debian as root: installs them. Elsewhere on Linux: says what
# is missing. macOS needs none.
[ "$(uname)" = Linux ] || exit 0
missing=""
need() { # library file, Debian package
    ldconfig -p 2>/dev/null | grep -q "$1" || missing="$missing $2"
}
export PATH="$PATH:/usr/sbin:/sbin"
need libopenblas.so.0 libopenblas0-pthread
need libEGL.so.1 libegl1
need libGL.so.1 libgl1
need libxkbcommon.so.0 libxkbcommon0
need libxkbcommon-x11.so.0 libxkbcommon-x11-0
need libxcb-cursor.so.0 libxcb-cursor0
need libxcb-icccm.so.4 libxcb-icccm4
need libxcb-image.so.0 libxcb-image0
need libxcb-keysyms.so.1 libxcb-keysyms1
need libxcb-render-util.so.0 libxcb-render-util0
need libxcb-shape.so.0 libxcb-shape0
need libfontconfig.so.1 libfontconfig1
need libdbus-1.so.3 libdbus-1-3
fc-list 2>/dev/null | grep -q . || missing="$missing fontconfig fonts-dejavu-core"
[ -n "$missing" ] || exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "Installing:$missing"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >/dev/null && exit 0
    echo "They could not be installed." >&2
    exit 1
fi
echo "System libraries may be missing (Debian's names):$missing" >&2
echo "On Debian or Ubuntu: sudo apt-get install$missing" >&2
exit 0
