"""The replica manager: append and fetch, the operations that wait for them, leader and follower roles."""
