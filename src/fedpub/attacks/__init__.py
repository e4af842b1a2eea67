"""What an honest but curious coordinator learns: attacks that are known to work, each beside a guess."""
