"""What every other package stands on: records, files, errors, weights. Imports nothing of ours."""
