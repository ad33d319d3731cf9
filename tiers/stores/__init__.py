"""Object stores behind one interface: of a cloud, in a folder, in memory."""
