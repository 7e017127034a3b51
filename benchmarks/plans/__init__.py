"""Plans for compiled games: a search for action sequences, and the games it is used on."""
