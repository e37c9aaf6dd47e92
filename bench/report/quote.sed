# Makes an array of C strings from a text file, one for each line.
s/[\\"]/\\&/g
s/.*/"&\\n",/
