"""Networks of deeplearning4j as layer graphs: their JSON configurations are read as data."""
