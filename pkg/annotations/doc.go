// Package annotations is what users write on a Pod: each key with its default, its
// meaning and what it allows, in one table. Validation, the documentation and the
// chart's schema are all made from that table, so that they cannot disagree.
//
// [Parse] reads the annotations and labels of one Pod, applies the defaults of the
// installation, and checks each value and their combination. It never looks at the
// rest of the Pod: that is the injection's part.
package annotations
