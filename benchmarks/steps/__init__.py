"""Single steps measured away from sockets and disks, in CPU time: beside other libraries, and by their sizes."""
