; 1: column
define internal void @body(i64 %n0, i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_0, i64 %s0_1, i64 %s1_0, i64 %s1_1) nounwind noinline {
entry:
  %v2 = icmp slt i64 0, %n1
  br i1 %v2, label %body1, label %done1
body1:
  %i1 = phi i64 [ 0, %entry ], [ %v4, %body1 ]
  %v3 = getelementptr inbounds float, ptr %p2, i64 %i1
  store float 0x8000000000000000, ptr %v3, align 4
  %v4 = add nuw nsw i64 %i1, 1
  %v5 = icmp slt i64 %v4, %n1
  br i1 %v5, label %body1, label %done1, !llvm.loop !0
done1:
  %v6 = udiv i64 %n0, 8
  %v7 = mul nsw i64 %v6, 8
  %v9 = icmp slt i64 0, %v7
  br i1 %v9, label %body8, label %done8
body8:
  %i8 = phi i64 [ 0, %done1 ], [ %v64, %done10 ]
  %v11 = icmp slt i64 0, %n1
  br i1 %v11, label %body10, label %done10
body10:
  %i10 = phi i64 [ 0, %body8 ], [ %v62, %body10 ]
  %v12 = add nsw i64 %i8, 1
  %v13 = add nsw i64 %i8, 2
  %v14 = add nsw i64 %i8, 3
  %v15 = add nsw i64 %i8, 4
  %v16 = add nsw i64 %i8, 5
  %v17 = add nsw i64 %i8, 6
  %v18 = add nsw i64 %i8, 7
  %v19 = mul nsw i64 %i8, %s0_0
  %v20 = getelementptr i8, ptr %p0, i64 %v19
  %v21 = getelementptr inbounds float, ptr %v20, i64 %i10
  %v22 = load float, ptr %v21, align 4
  %v23 = mul nsw i64 %v12, %s0_0
  %v24 = getelementptr i8, ptr %p0, i64 %v23
  %v25 = getelementptr inbounds float, ptr %v24, i64 %i10
  %v26 = load float, ptr %v25, align 4
  %v27 = mul nsw i64 %v13, %s0_0
  %v28 = getelementptr i8, ptr %p0, i64 %v27
  %v29 = getelementptr inbounds float, ptr %v28, i64 %i10
  %v30 = load float, ptr %v29, align 4
  %v31 = mul nsw i64 %v14, %s0_0
  %v32 = getelementptr i8, ptr %p0, i64 %v31
  %v33 = getelementptr inbounds float, ptr %v32, i64 %i10
  %v34 = load float, ptr %v33, align 4
  %v35 = mul nsw i64 %v15, %s0_0
  %v36 = getelementptr i8, ptr %p0, i64 %v35
  %v37 = getelementptr inbounds float, ptr %v36, i64 %i10
  %v38 = load float, ptr %v37, align 4
  %v39 = mul nsw i64 %v16, %s0_0
  %v40 = getelementptr i8, ptr %p0, i64 %v39
  %v41 = getelementptr inbounds float, ptr %v40, i64 %i10
  %v42 = load float, ptr %v41, align 4
  %v43 = mul nsw i64 %v17, %s0_0
  %v44 = getelementptr i8, ptr %p0, i64 %v43
  %v45 = getelementptr inbounds float, ptr %v44, i64 %i10
  %v46 = load float, ptr %v45, align 4
  %v47 = mul nsw i64 %v18, %s0_0
  %v48 = getelementptr i8, ptr %p0, i64 %v47
  %v49 = getelementptr inbounds float, ptr %v48, i64 %i10
  %v50 = load float, ptr %v49, align 4
  %v51 = fadd float %v22, %v26
  %v52 = fadd float %v30, %v34
  %v53 = fadd float %v38, %v42
  %v54 = fadd float %v46, %v50
  %v55 = fadd float %v51, %v52
  %v56 = fadd float %v53, %v54
  %v57 = fadd float %v55, %v56
  %v58 = getelementptr inbounds float, ptr %p2, i64 %i10
  %v59 = load float, ptr %v58, align 4
  %v60 = fadd float %v59, %v57
  %v61 = getelementptr inbounds float, ptr %p2, i64 %i10
  store float %v60, ptr %v61, align 4
  %v62 = add nuw nsw i64 %i10, 1
  %v63 = icmp slt i64 %v62, %n1
  br i1 %v63, label %body10, label %done10, !llvm.loop !3
done10:
  %v64 = add nuw nsw i64 %i8, 8
  %v65 = icmp slt i64 %v64, %v7
  br i1 %v65, label %body8, label %done8
done8:
  %v67 = icmp slt i64 %v7, %n0
  br i1 %v67, label %body66, label %done66
body66:
  %i66 = phi i64 [ %v7, %done8 ], [ %v80, %done68 ]
  %v69 = icmp slt i64 0, %n1
  br i1 %v69, label %body68, label %done68
body68:
  %i68 = phi i64 [ 0, %body66 ], [ %v78, %body68 ]
  %v70 = mul nsw i64 %i66, %s0_0
  %v71 = getelementptr i8, ptr %p0, i64 %v70
  %v72 = getelementptr inbounds float, ptr %v71, i64 %i68
  %v73 = load float, ptr %v72, align 4
  %v74 = getelementptr inbounds float, ptr %p2, i64 %i68
  %v75 = load float, ptr %v74, align 4
  %v76 = fadd float %v75, %v73
  %v77 = getelementptr inbounds float, ptr %p2, i64 %i68
  store float %v76, ptr %v77, align 4
  %v78 = add nuw nsw i64 %i68, 1
  %v79 = icmp slt i64 %v78, %n1
  br i1 %v79, label %body68, label %done68, !llvm.loop !6
done68:
  %v80 = add nuw nsw i64 %i66, 1
  %v81 = icmp slt i64 %v80, %n0
  br i1 %v81, label %body66, label %done66
done66:
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
!3 = distinct !{!3, !4, !5}
!4 = !{!"llvm.loop.vectorize.enable", i1 true}
!5 = !{!"llvm.loop.interleave.count", i32 4}
!6 = distinct !{!6, !7, !8}
!7 = !{!"llvm.loop.vectorize.enable", i1 true}
!8 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds i64, ptr %args, i64 3
  %v7 = load i64, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 4
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr inbounds i64, ptr %args, i64 5
  %v11 = load i64, ptr %v10, align 8
  %v12 = getelementptr inbounds i64, ptr %args, i64 6
  %v13 = load i64, ptr %v12, align 8
  %v14 = getelementptr inbounds ptr, ptr %buffers, i64 %v13
  %v15 = load ptr, ptr %v14, align 8
  %v16 = getelementptr inbounds i64, ptr %args, i64 7
  %v17 = load i64, ptr %v16, align 8
  %v18 = getelementptr i8, ptr %v15, i64 %v17
  %v19 = getelementptr inbounds i64, ptr %args, i64 8
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr inbounds i64, ptr %args, i64 9
  %v22 = load i64, ptr %v21, align 8
  %v23 = getelementptr inbounds i64, ptr %args, i64 10
  %v24 = load i64, ptr %v23, align 8
  %v25 = getelementptr inbounds ptr, ptr %buffers, i64 %v24
  %v26 = load ptr, ptr %v25, align 8
  %v27 = getelementptr inbounds i64, ptr %args, i64 11
  %v28 = load i64, ptr %v27, align 8
  %v29 = getelementptr i8, ptr %v26, i64 %v28
  %v30 = getelementptr inbounds i64, ptr %args, i64 12
  %v31 = load i64, ptr %v30, align 8
  %v32 = getelementptr inbounds i64, ptr %args, i64 13
  %v33 = load i64, ptr %v32, align 8
  %v34 = getelementptr inbounds i64, ptr %args, i64 14
  %v35 = load i64, ptr %v34, align 8
  %v36 = getelementptr inbounds ptr, ptr %buffers, i64 %v35
  %v37 = load ptr, ptr %v36, align 8
  %v38 = getelementptr inbounds i64, ptr %args, i64 15
  %v39 = load i64, ptr %v38, align 8
  %v40 = getelementptr i8, ptr %v37, i64 %v39
  %v42 = icmp slt i64 %lo, %hi
  br i1 %v42, label %body41, label %done41
body41:
  %i41 = phi i64 [ %lo, %entry ], [ %v68, %body41 ]
  %v43 = udiv i64 %i41, %v9
  %v44 = mul nsw i64 %v43, %v9
  %v45 = sub nsw i64 %i41, %v44
  %v46 = udiv i64 %v43, %v5
  %v47 = mul nsw i64 %v46, %v5
  %v48 = sub nsw i64 %v43, %v47
  %v49 = mul nsw i64 %v48, %v7
  %v50 = mul nsw i64 %v45, %v11
  %v51 = sub nsw i64 %v1, %v49
  %v52 = call i64 @llvm.smin.i64(i64 %v7, i64 %v51)
  %v53 = sub nsw i64 %v3, %v50
  %v54 = call i64 @llvm.smin.i64(i64 %v11, i64 %v53)
  %v55 = add nsw i64 %v48, %v46
  %v56 = mul nsw i64 %v55, %v3
  %v57 = add nsw i64 %v56, %v50
  %v58 = mul nsw i64 %v57, 4
  %v59 = getelementptr i8, ptr %v40, i64 %v58
  %v60 = mul nsw i64 %v49, %v20
  %v61 = mul nsw i64 %v50, %v22
  %v62 = add nsw i64 %v60, %v61
  %v63 = getelementptr i8, ptr %v18, i64 %v62
  %v64 = mul nsw i64 %v49, %v31
  %v65 = mul nsw i64 %v50, %v33
  %v66 = add nsw i64 %v64, %v65
  %v67 = getelementptr i8, ptr %v29, i64 %v66
  call void @body(i64 %v52, i64 %v54, ptr %v63, ptr %v67, ptr %v59, i64 %v20, i64 %v22, i64 %v31, i64 %v33)
  %v68 = add nuw nsw i64 %i41, 1
  %v69 = icmp slt i64 %v68, %hi
  br i1 %v69, label %body41, label %done41
done41:
  ret void
}

; 2: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, i64 %s0_1, i64 %s1_1) nounwind noinline {
entry:
  %s1 = alloca double, i64 1
  %s2 = alloca double, i64 1
  store double 0x8000000000000000, ptr %s1
  store double 0x8000000000000000, ptr %s2
  %v4 = icmp slt i64 0, %n1
  br i1 %v4, label %body3, label %done3
body3:
  %i3 = phi i64 [ 0, %entry ], [ %v20, %done7 ]
  store double 0x8000000000000000, ptr %s2
  %v5 = add nsw i64 %i3, 256
  %v6 = call i64 @llvm.smin.i64(i64 %v5, i64 %n1)
  %v8 = icmp slt i64 %i3, %v6
  br i1 %v8, label %body7, label %done7
body7:
  %i7 = phi i64 [ %i3, %body3 ], [ %v15, %body7 ]
  %v9 = mul nsw i64 %i7, %s0_1
  %v10 = getelementptr i8, ptr %p0, i64 %v9
  %v11 = load float, ptr %v10, align 4
  %v12 = fpext float %v11 to double
  %v13 = load double, ptr %s2
  %v14 = fadd reassoc double %v13, %v12
  store double %v14, ptr %s2
  %v15 = add nuw nsw i64 %i7, 1
  %v16 = icmp slt i64 %v15, %v6
  br i1 %v16, label %body7, label %done7, !llvm.loop !0
done7:
  %v17 = load double, ptr %s1
  %v18 = load double, ptr %s2
  %v19 = fadd double %v17, %v18
  store double %v19, ptr %s1
  %v20 = add nuw nsw i64 %i3, 256
  %v21 = icmp slt i64 %v20, %n1
  br i1 %v21, label %body3, label %done3
done3:
  %v22 = load double, ptr %s1
  %v23 = fptrunc double %v22 to float
  store float %v23, ptr %p1, align 4
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 1}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds ptr, ptr %buffers, i64 %v5
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v7, i64 %v9
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr inbounds ptr, ptr %buffers, i64 %v16
  %v18 = load ptr, ptr %v17, align 8
  %v19 = getelementptr inbounds i64, ptr %args, i64 7
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr i8, ptr %v18, i64 %v20
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v27 = icmp slt i64 %lo, %hi
  br i1 %v27, label %body26, label %done26
body26:
  %i26 = phi i64 [ %lo, %entry ], [ %v32, %body26 ]
  %v28 = mul nsw i64 %i26, %v12
  %v29 = getelementptr i8, ptr %v10, i64 %v28
  %v30 = mul nsw i64 %i26, %v23
  %v31 = getelementptr i8, ptr %v21, i64 %v30
  call void @body(i64 %v3, ptr %v29, ptr %v31, i64 %v14, i64 %v25)
  %v32 = add nuw nsw i64 %i26, 1
  %v33 = icmp slt i64 %v32, %hi
  br i1 %v33, label %body26, label %done26
done26:
  ret void
}
